token=$(SYNC_STORE=office sync-cli invite)
sync-cli --store vessel join --name vessel "$token"
token=$(SYNC_STORE=office sync-cli invite)
sync-cli --store pier join --name pier "$token"
