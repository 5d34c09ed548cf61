//go:build kubevirt

package main

import "testing"

// TestScriptOnKubeVirt runs the walk with the machines on KubeVirt.
func TestScriptOnKubeVirt(t *testing.T) {
	d := start(t, "--script", "--runtime", "kubevirt")
	d.ends(true)
	d.shows("DEMO OK: ")
}
