"""The agent: a process beside the server that keeps the count of hosts and the limits up to date.

start.py starts it, life.py is the process, duty.py, hosts_duty.py and limits_duty.py are its work.
"""
