//go:build !race

package vsphere_test

const raceDetector = false
