"""The commands of the command line, a noun a file. shmlimit/cli.py parses, prints and fails."""
