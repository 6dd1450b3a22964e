"""What is on this machine: QMD and its Node, its folders and models, the processes that run it."""
