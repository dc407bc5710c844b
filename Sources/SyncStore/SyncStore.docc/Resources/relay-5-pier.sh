sync-cli --store vessel invite --relay stick > token
sync-cli --store pier join --name pier --timeout 1s "$(cat token)" || echo "later again"
sync-cli --store office sync stick
sync-cli --store pier join --name pier "$(cat token)"
