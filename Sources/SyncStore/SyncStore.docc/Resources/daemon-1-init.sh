sync-cli --store shared init --name shop
