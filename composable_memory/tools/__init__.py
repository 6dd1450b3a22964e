"""The tools of an agent: typed functions of a memory and a request, with JSON in and out.

None of them raises if a memory fails: the reply then says what is wrong and what to do. `TOOLS` in
`catalogue` lists those offered to agents.
"""
