System.reserveStandardDescriptors()
System.ignoreBrokenPipes()
System.exit(Program.run(System.arguments))
