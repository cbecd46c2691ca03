CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,             -- when the nodes were asked, UTC
  command TEXT NOT NULL,
  version TEXT NOT NULL,
  cluster_file TEXT,
  exit_status INTEGER NOT NULL,
  checks TEXT NOT NULL,         -- JSON: ids of the checks that ran
  record TEXT NOT NULL          -- JSON: what the nodes were
);
CREATE INDEX run_at ON run (at, command);
CREATE TABLE node (
  run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  name TEXT NOT NULL,
  answered INTEGER NOT NULL,
  PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE TABLE finding (          -- what did not pass
  run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  node TEXT NOT NULL,
  check_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  status TEXT NOT NULL,
  message TEXT NOT NULL
);
CREATE INDEX finding_of ON finding (check_id, subject, node, run);
CREATE INDEX finding_in ON finding (run);
CREATE TABLE sample (           -- numbers whose course tells
  run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  node TEXT NOT NULL,
  metric TEXT NOT NULL,
  subject TEXT NOT NULL,
  value REAL NOT NULL
);
CREATE INDEX sample_of ON sample (node, metric, subject, run);
CREATE INDEX sample_in ON sample (run);
CREATE TABLE figure (           -- results of benchmarks
  run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
  what TEXT NOT NULL,
  subject TEXT NOT NULL,
  value REAL NOT NULL,
  unit TEXT NOT NULL
);
CREATE INDEX figure_in ON figure (run);
CREATE TABLE job (
  id TEXT PRIMARY KEY,
  ended TEXT NOT NULL,          -- UTC
  seconds REAL NOT NULL,
  nodes INTEGER,
  name TEXT NOT NULL,           -- jobs of one name are compared
  outcome TEXT NOT NULL
);
