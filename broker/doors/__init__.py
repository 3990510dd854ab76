"""What speaks through the agents' own doors (`shims.door`): conversations over sockets and programs, and the news of them."""
