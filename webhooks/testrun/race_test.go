//go:build race

package testrun

// raceDetector tells tests of memory limits to stand back: the detector itself needs more than a test run may use.
const raceDetector = true
