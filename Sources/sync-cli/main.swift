System.reserveStandardDescriptors()
System.ignoreSignalsOfWriting()
System.exit(Program.run(System.arguments))
