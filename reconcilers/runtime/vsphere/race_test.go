//go:build race

package vsphere_test

// raceDetector tells tests that do one thing after another to stand back: they take ten times as long with it, and it finds nothing in
// them that it does not find in others.
const raceDetector = true
