sync-cli --store till join "$(sync-cli --store shared invite)" --name till
sync-cli --store till put order/1 "3 apples"
sync-cli --store till sync shop
sync-cli --store shared get order/1
