//go:build race

package trial

// raceDetector tells tests of memory limits to stand back: the detector itself needs more than a rehearsal may use.
const raceDetector = true
