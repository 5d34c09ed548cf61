package testrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Finding is what became of a test run. Policies see it as the answer to a test run.
type Finding struct {
	// Problems keep the candidate from being used.
	Problems []Problem `json:"problems"`
	// Tests are the candidate's own.
	Tests Tests `json:"tests"`
	// Breaks are policies that are in order and would not be.
	Breaks []Break `json:"breaks"`
	// Missing is what the candidate refers to in libraries that are not there.
	Missing []string `json:"missing"`
	// Untested are policies that import the candidate and whose tests there was no time for.
	Untested []string `json:"untested"`
	// Unserved is what spec.match names and the cluster does not have.
	Unserved []string `json:"unserved"`
	// Unpatchable is what the candidate matches, has patch rules for and may not patch, a text each.
	Unpatchable []string `json:"unpatchable"`
	// Ungranted are the rights that Sallyport lacks to read what the candidate reads, and Grant is the command that grants them.
	Ungranted []Ungranted `json:"ungranted"`
	Grant     string      `json:"grant,omitempty"`
	// Took is how long it took.
	Took string `json:"took"`
}

// Ungranted is what of the rights to a resource is lacking.
type Ungranted struct {
	Resource string   `json:"resource"`
	Verbs    []string `json:"verbs"`
}

// Problem is one thing that is wrong with a candidate.
type Problem struct {
	// Kind is the reason of a condition for it.
	Kind v1alpha1.ConditionReason `json:"kind"`
	// File is the policy and the file in it; Line and Column count from one, and are absent if it is about the whole.
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// String gives file:line:column: message.
func (p Problem) String() string {
	return engine.CompileError{File: p.File, Row: p.Line, Col: p.Column, Message: p.Message}.Error()
}

// Tests is how a policy's tests went.
type Tests struct {
	Passed int `json:"passed"`
	// Failures counts those that failed, Failed has the first of them.
	Failures int                 `json:"failures"`
	Failed   []engine.TestResult `json:"failed"`
}

// Break is a policy that would break.
type Break struct {
	Policy  string `json:"policy"`
	Message string `json:"message"`
}

// fine tells whether nothing speaks against the candidate so far.
func (f *Finding) fine() bool {
	return len(f.Problems) == 0 && len(f.Breaks) == 0 && len(f.Missing) == 0 && f.Tests.Failures == 0
}

// Has tells whether there is a problem of a kind.
func (f *Finding) Has(kind v1alpha1.ConditionReason) bool {
	return slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Kind == kind })
}

// Refused tells what speaks against the candidate, nil if nothing does. A library that is missing does not: it may come.
func (f *Finding) Refused() error {
	var lines []string
	for _, p := range f.Problems {
		lines = append(lines, p.String())
	}
	for _, t := range f.Tests.Failed {
		lines = append(lines, t.String())
	}
	if more := f.Tests.Failures - len(f.Tests.Failed); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more tests", more))
	}
	for _, b := range f.Breaks {
		lines = append(lines, fmt.Sprintf("RegoPolicy %s would break: %s", b.Policy, b.Message))
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// results are those of a test run.
func results(r *engine.TestRun) (t Tests) {
	for _, result := range r.Tests {
		if result.Problem == "" {
			t.Passed++
			continue
		}
		t.Failures++
		result.Took = 0 // which is another one each time
		t.Failed = append(t.Failed, result)
	}
	return t
}

// firstLine is what of an error fits into a sentence: the first thing that is wrong.
func firstLine(err error) string {
	var places engine.CompileErrors
	if errors.As(err, &places) && len(places) > 0 {
		return places[0].Error()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// How much of a finding is kept. It is for reading, and becomes part of a denial.
const (
	maxListed = 20
	maxText   = 2000
)

// bound cuts what is too long, and has empty lists be lists.
func (f *Finding) bound() {
	if more := len(f.Problems) - maxListed; more > 0 {
		last := f.Problems[maxListed-1]
		last.Line, last.Column, last.Message = 0, 0, fmt.Sprintf("and %d more problems", more+1)
		f.Problems = append(f.Problems[:maxListed-1], last)
	}
	f.Problems, f.Tests.Failed, f.Breaks = short(f.Problems), short(f.Tests.Failed), short(f.Breaks)
	f.Missing, f.Untested, f.Unserved = short(f.Missing), short(f.Untested), short(f.Unserved)
	f.Unpatchable, f.Ungranted = short(f.Unpatchable), short(f.Ungranted)
	for i := range f.Problems {
		cut(&f.Problems[i].Message, &f.Problems[i].File)
	}
	for i := range f.Tests.Failed {
		t := &f.Tests.Failed[i]
		t.Cases = short(t.Cases)
		for j := range t.Cases {
			cut(&t.Cases[j])
		}
		cut(&t.Name, &t.Place, &t.Problem, &t.Output)
	}
	for i := range f.Breaks {
		cut(&f.Breaks[i].Message)
	}
	for _, texts := range [][]string{f.Missing, f.Unpatchable} {
		for i := range texts {
			cut(&texts[i])
		}
	}
}

func short[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list[:min(len(list), maxListed)]
}

func cut(texts ...*string) {
	for _, text := range texts {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "") + "..."
		}
	}
}
