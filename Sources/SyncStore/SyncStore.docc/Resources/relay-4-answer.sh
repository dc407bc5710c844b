sync-cli --store office sync stick
sync-cli --store vessel join --name vessel "$(cat token)"
