sync-cli --store office sync stick
sync-cli --store office relay status stick
