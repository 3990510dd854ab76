"""The real agent host of VS Code, as Copilot's chats run in it, in a throw-away home with a scripted model.

``installation`` sets it up, ``process`` runs it, ```window.cjs``` and ``model`` answer for the models that VS Code's window would
bring along, ``protocol`` and ``client`` are what that window says to it, ``recordings`` keeps what was said.
"""
