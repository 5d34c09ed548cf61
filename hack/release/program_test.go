package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/env/install"
)

// imports are the packages that the program links.
func imports(t *testing.T) []string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", install.Tags, "../../cmd/sallyport").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(list))
}

// The image of the manager contains neither the demo nor what only the demo and tests need.
func TestProgramLeavesTheDemoOut(t *testing.T) {
	for _, pkg := range imports(t) {
		for _, foreign := range []string{"sallyport.dev/sallyport/cmd/demo", "sallyport.dev/sallyport/test/", "github.com/vmware/govmomi/simulator"} {
			if strings.HasPrefix(pkg, foreign) {
				t.Errorf("cmd/sallyport links %s", pkg)
			}
		}
	}
}

// A package that can load Go plugins has the linker keep all code: a third of the program, and of its memory.
func TestBuildLeavesGoPluginsOut(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tags := regexp.MustCompile(`(?m)^tags := (\S+)$`).FindSubmatch(makefile)
	if tags == nil || string(tags[1]) != install.Tags {
		t.Fatalf("make builds with the tags %q, the tests with %q", tags, install.Tags)
	}
	if slices.Contains(imports(t), "plugin") {
		t.Error("with the tags of make build there is a package that imports plugin; without -tags, go list -deps -json finds it")
	}
}
