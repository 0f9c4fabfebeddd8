"""shmlimit in front of HTTP applications. Nothing outside this package knows of HTTP."""
