def shared_bytes(operation, pixels): return 0
def launch(*a): raise NotImplementedError
