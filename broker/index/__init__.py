"""One index of all sessions of the user, live or dormant: kept by a process of its own, asked in the broker's memory.

`program` reads the stores of the agents and says what changed (`leaves`, `kept`, `watching`); `feed` is what the two say to each
other; `indexer` is the broker's end of it, `catalogue` what it knows. Nothing here knows an agent by name.
"""
