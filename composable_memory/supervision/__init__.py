"""What keeps a memory usable when others hang, fail, die or compete: one kit for the core and all adapters.

`deadline` and `breaker` bound calls of others, and `backoff` tries them again; `lease` and `file_lock` let
one process at a time work; `process` and `run_command` run programs that end when we do, and `server_record`
tells other processes where one listens; `single_flight`, `resource` and `tasks` share work, and what was
opened, between callers.
"""
