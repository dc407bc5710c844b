print("sync-cli")
