sync-cli --store pier put berth/3 "free from Tuesday"
sync-cli --store pier sync stick
sync-cli --store vessel put position "54.3 N 10.1 E"
sync-cli --store vessel sync stick
sync-cli --store vessel get berth/3
