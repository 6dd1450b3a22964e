"""Keeps a memory usable when something else hangs, fails, dies or competes with it; for core and adapters.

`deadline` and `breaker` bound calls to others, `backoff` retries them. `lease` and `file_lock` let one
process at a time do some work. `process` and `run_command` run programs that end when we do, and
`server_record` tells other processes where one listens. `single_flight`, `resource` and `tasks` share work
and open resources between callers.
"""
