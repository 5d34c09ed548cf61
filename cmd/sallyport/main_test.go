package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/env/install"
)

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
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", install.Tags, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(list)), "plugin") {
		t.Error("with the tags of make build there is a package that imports plugin; without -tags, go list -deps -json finds it")
	}
}
