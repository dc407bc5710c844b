sync-cli --store office invite --ttl 10m > token
