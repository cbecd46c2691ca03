"""Cost of a parallel layout: what each kind of parallelism needs of a fabric.

A module here computes from a layout and the cluster's expectations; it collects nothing and renders nothing. The
package sits between ``expectations``, which it may import, and ``checks`` and ``commands``.
"""
