//go:build !race

package trial

const raceDetector = false
