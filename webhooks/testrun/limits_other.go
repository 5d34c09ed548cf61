//go:build !linux

package testrun

// take does nothing: elsewhere than on Linux, where no cluster runs it, a test run is limited in time only.
func (Limits) take() error { return nil }
