package testrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/engine"
)

// Finding is the result of a test run. It is the value of a policy's testRun fact.
type Finding struct {
	// Problems are errors of the candidate.
	Problems []Problem `json:"problems"`
	// Tests are the results of the candidate's own tests.
	Tests Tests `json:"tests"`
	// Breaks are valid policies that the candidate would break.
	Breaks []Break `json:"breaks"`
	// Missing are the candidate's unresolved references to libraries.
	Missing []string `json:"missing"`
	// Untested are policies that import the candidate and whose tests did not run for lack of time.
	Untested []string `json:"untested"`
	// Unserved are entries of spec.match that the cluster does not serve.
	Unserved []string `json:"unserved"`
	// Unpatchable are resources that the candidate matches with patch rules and may not patch.
	Unpatchable []string `json:"unpatchable"`
	// Ungranted are rights that Sallyport lacks for the candidate's reads, and Grant is the command that grants them.
	Ungranted []Ungranted `json:"ungranted"`
	Grant     string      `json:"grant,omitempty"`
	// Took is the duration.
	Took string `json:"took"`
}

// Ungranted lists missing rights to a resource.
type Ungranted struct {
	Resource string   `json:"resource"`
	Verbs    []string `json:"verbs"`
}

// LimitExceeded is the kind of a problem: the run took more time or memory than it may. The message has the last step.
const LimitExceeded v1alpha1.ConditionReason = "LimitExceeded"

// Problem is an error of a candidate.
type Problem struct {
	// Kind is the reason of its condition, or LimitExceeded.
	Kind v1alpha1.ConditionReason `json:"kind"`
	// File is the policy and its file; Line and Column count from one, and are absent if the problem is about the whole.
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// String returns file:line:column: message.
func (p Problem) String() string {
	return engine.CompileError{File: p.File, Row: p.Line, Col: p.Column, Message: p.Message}.Error()
}

// Tests are the results of a policy's tests.
type Tests struct {
	Passed int `json:"passed"`
	// Failures counts the failed tests, Failed has the first of them.
	Failures int                 `json:"failures"`
	Failed   []engine.TestResult `json:"failed"`
}

// Break is a policy that would break.
type Break struct {
	Policy  string `json:"policy"`
	Message string `json:"message"`
}

// ok reports whether no problem was found so far.
func (f *Finding) ok() bool {
	return len(f.Problems) == 0 && len(f.Breaks) == 0 && len(f.Missing) == 0 && f.Tests.Failures == 0
}

// Has reports whether there is a problem of a kind.
func (f *Finding) Has(kind v1alpha1.ConditionReason) bool {
	return slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Kind == kind })
}

// unparsed reports whether modules of the candidate may have errors of syntax, or none may be parsed without limits.
func (f *Finding) unparsed() bool {
	return f.Has(v1alpha1.ReasonCompileFailed) || f.Has(LimitExceeded)
}

// Refused returns the reasons to reject the candidate, or nil. A missing library is none: it may be created later.
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

// results converts the results of a test run.
func results(r *engine.TestRun) (t Tests) {
	for _, result := range r.Tests {
		if result.Problem == "" {
			t.Passed++
			continue
		}
		t.Failures++
		result.Took = 0 // it differs each time
		t.Failed = append(t.Failed, result)
	}
	return t
}

// firstLine returns the first error, for use in a sentence.
func firstLine(err error) string {
	var places engine.CompileErrors
	if errors.As(err, &places) && len(places) > 0 {
		return places[0].Error()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Limits of a finding, which becomes part of a denial.
const (
	maxListed = 20
	maxText   = 2000
)

// truncate truncates long lists and texts, and makes nil lists empty.
func (f *Finding) truncate() {
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
