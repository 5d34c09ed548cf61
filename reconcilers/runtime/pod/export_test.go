package pod

// NameOf is nameOf for tests.
var NameOf = nameOf
