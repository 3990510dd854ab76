"""Turns that the broker starts on an agent's command line: each runs in a process of its own that outlives the broker (DE-24).

`files` is what the two sides share, a directory for each turn; `program` is the runner, `environment` what its agent gets
of the caller's. `started` is the broker's side: it starts runners, hears of them, and adopts those of an earlier broker;
`verdict` says what the end of one means. Nothing here knows an agent by name.
"""
