sync-cli --store vessel join "$(cat token)" --name vessel
