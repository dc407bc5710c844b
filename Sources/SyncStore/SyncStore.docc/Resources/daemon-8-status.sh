sync-cli --store shared status
sync-cli --store shared peer list
