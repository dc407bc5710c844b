export SYNC_STORE=office
sync-cli init --name office
sync-cli put log/1 "the vessel leaves on Monday"
