"""From a question to what QMD finds: how it is put, who is asked, how the answer is read."""
