package testrun

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// TestMain is the child, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if act, ok := acts[os.Args[1]]; ok {
			act()
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// acts are what a child can be told to do: its duty, or something else.
var acts = map[string]func(){
	Subcommand: func() {
		var l Limits
		flags := pflag.NewFlagSet("child", pflag.ExitOnError)
		flags.Int64Var(&l.Memory, "memory", 0, "")
		flags.DurationVar(&l.Within, "within", 0, "")
		_ = flags.Parse(os.Args[2:])
		if err := Serve(os.Stdin, os.Stdout, l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	},
	"garbage": func() { fmt.Println(`{"finding": {"problems": "none"}}`) },
	"silent":  func() {},
	"half":    func() { fmt.Print(`{"finding": {"problems": []`) },
	"flood": func() {
		for {
			fmt.Println(`{"at": "` + strings.Repeat("x", 1000) + `"}`)
		}
	},
	"line": func() {
		for {
			fmt.Print(strings.Repeat("x", 1000))
		}
	},
	"crash": func() {
		fmt.Println(`{"at": "running test toy_test.test_x (x_test.rego:3)"}`)
		panic("no child of mine")
	},
	"lie": func() {
		fmt.Println(`{"finding": {"problems": []}}`)
		os.Exit(3)
	},
	"told": func() { // what it was started with
		dir, _ := os.Getwd()
		told := []string{strings.Join(os.Environ(), " "), dir}
		fds, _ := os.ReadDir("/proc/self/fd")
		for _, fd := range fds {
			file, _ := os.Readlink("/proc/self/fd/" + fd.Name())
			told = append(told, file)
		}
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"finding": map[string]any{"missing": told}})
	},
	"sleep": func() { time.Sleep(time.Hour) },
	"tired": func() { // over a policy of that name
		if text, _ := io.ReadAll(os.Stdin); strings.Contains(string(text), "tiring") {
			time.Sleep(time.Hour)
		}
		fmt.Println(`{"finding": {"took": "awake"}}`)
	},
	"deaf": func() { fmt.Println(`{"finding": {"took": "did not listen"}}`) },
}

// process is a child with an act.
func process(t *testing.T, act string) Process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Process{Command: []string{program, act}, Memory: 256 << 20}
}

// toy is a policy that refuses what is marked, with a test.
func toy(name string, more ...string) *v1alpha1.RegoPolicy {
	return &v1alpha1.RegoPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.RegoPolicySpec{
			Package: "toy." + name, Mode: v1alpha1.ModeEnforce,
			Match: &v1alpha1.PolicyMatch{Resources: []v1alpha1.PolicyResources{{
				APIGroups: []string{"toy"}, APIVersions: []string{"*"}, Resources: []string{"toys"}, Operations: []v1alpha1.MatchOperation{v1alpha1.MatchCreate},
			}}},
			Modules: []v1alpha1.PolicyModule{{Name: name + ".rego", Source: fmt.Sprintf(`# METADATA
# title: T
# description: D
package toy.%s

valid_input if true

# METADATA
# title: Marked
# custom: {reason: Marked, remedy: Unmark it.}
deny contains {"reason": "Marked", "message": $"{_word} is marked"} if {
	input.request.object.marked == true
}

# What it is called.
_word := "it"
%s
`, name, strings.Join(more, "\n"))}},
			Tests: []v1alpha1.PolicyTest{{Name: name + "_test.rego", Source: fmt.Sprintf(`package toy.%[1]s_test

import data.toy.%[1]s as policy

test_marked if count(policy.deny) == 1 with input.request.object.marked as true

test_others[note] if {
	some note, mark in {"no": false, "a text": "true"}
	count(policy.deny) == 0 with input.request.object.marked as mark
}
`, name)}},
		},
	}
}

// tested is a policy with other tests.
func tested(p *v1alpha1.RegoPolicy, tests string) *v1alpha1.RegoPolicy {
	p.Spec.Tests = []v1alpha1.PolicyTest{{Name: p.Name + "_test.rego", Source: "package " + p.Spec.Package + "_test\n\n" + tests + "\n"}}
	return p
}

// library has one function, and a test.
func library(name, body string, minutes int) *v1alpha1.RegoPolicy {
	p := &v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 21, 10, minutes, 0, 0, time.UTC))
	p.Spec = v1alpha1.RegoPolicySpec{
		Package: "sallyport.lib." + name, Library: true,
		Modules: []v1alpha1.PolicyModule{{Name: name + ".rego", Source: "package sallyport.lib." + name + "\n\n" + body + "\n"}},
	}
	return tested(p, "test_x if true")
}

// importing is a policy that says what a library's function gives.
func importing(name, function string) *v1alpha1.RegoPolicy {
	p := toy(name)
	source := &p.Spec.Modules[0].Source
	*source = strings.Replace(*source, `_word := "it"`, `_word := data.sallyport.lib.`+function+`("it")`, 1)
	return p
}

func world(all ...*v1alpha1.RegoPolicy) []v1alpha1.RegoPolicy {
	var objects []v1alpha1.RegoPolicy
	for _, p := range all {
		objects = append(objects, *p.DeepCopy())
	}
	return objects
}
