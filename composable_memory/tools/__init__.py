"""What an agent calls: typed functions of a memory and a request, with JSON in and out.

None of them raises for a memory that fails: the reply then says what is wrong and what to do. `TOOLS` in
`catalogue` lists those that agents are offered.
"""
