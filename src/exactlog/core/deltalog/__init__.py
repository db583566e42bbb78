"""The rules of the delta log: names, commits, checkpoints and their replay.

- `log_path`: what the files of a partition are called
- `timestamps`: RFC 3339, in and out
- `canonical_json`: the one spelling of a document, and the checksum over it
- `commit_format`: one version of the table, `N.json`
- `checkpoint_format`: the whole table as of a version, `N.checkpoint.json`
- `compacted_format`: old versions in one file, `M.N.compacted.json`
- `table_state`: what replaying delta commits gives
- `checkpoint_policy`: when a delta checkpoint is written
- `version_ranges`: which versions there are
- `version_cleanup`: which old versions are packed, and which may expire
- `as_of`: which version a reader of the past gets
"""
