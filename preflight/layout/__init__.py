"""Cost of a parallel layout: what each kind of parallelism needs of a fabric.

Modules in this package compute from a layout and the cluster's expectations, without collecting or rendering. The
package is between ``expectations``, which it may import, and ``checks`` and ``commands``.
"""
