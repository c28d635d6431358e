"""Both sides of the sandbox: the process that holds the program, and the trusted one that tests it.

Standard library only: the program's side sees nothing else of this package.
"""
