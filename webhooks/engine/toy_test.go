package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.dev/sallyport/test/support/race"
)

// The engine is tested on a toy domain, so that it cannot get used to Kubernetes: a library that lends books.

const lendingPolicy = `# METADATA
# title: Lending
# description: A book is lent to one reader at a time.
package toy.lending

import data.toy.lib.readers

facts.loans := {
	"apiVersion": "toy/v1", "kind": "Loan", "namespace": input.request.branch,
	"fields": {"book": input.request.book},
	"except": {"state": ["Returned"]},
}

facts.member := {"apiVersion": "toy/v1", "kind": "Member", "name": input.request.reader} if not input.request.guest

facts.member := null if input.request.guest

valid_input if {
	is_string(input.request.book)
	every loan in input.facts.loans { is_string(loan.reader) }
}

# METADATA
# title: The book is lent
# custom: {reason: BookIsLent, remedy: Wait until it is returned.}
deny contains {
	"reason": "BookIsLent", "code": 409,
	"message": $"{input.request.book} is with {loan.reader} until {loan.due}",
	"details": {"kind": "Loan", "name": loan.id},
} if {
	some loan in input.facts.loans
	not _by_staff
}

_by_staff if readers.staff(input.request.reader)

# METADATA
# title: Not a member
# custom: {reason: NotAMember, remedy: Register first.}
deny contains {"reason": "NotAMember", "message": $"{input.request.reader} is not a member"} if {
	not input.request.guest
	input.facts.member == null
}

warn contains $"at most {data.parameters.days} days" if data.parameters.days < 7

patch contains {"op": "add", "path": "/lentAt", "value": input.now} if true

patch contains {"op": "add", "path": "/shelf", "value": input.request.shelf} if "shelf" in object.keys(input.request)

outcome.recalls contains loan.id if {
	some loan in input.facts.loans
	readers.staff(input.request.reader)
}
`

const readersLibrary = `# METADATA
# title: Readers
# description: Who is who.
package toy.lib.readers

staff(name) if startswith(name, "staff-")
`

func lending() Source {
	return Source{
		Name: "lending", Package: "toy.lending",
		Modules:    []Module{{"lending.rego", lendingPolicy}},
		Libraries:  []Module{{"readers.rego", readersLibrary}, {"unused.rego", "package toy.lib.unused\n\nx := 1\n"}},
		Parameters: []byte(`{"days": 14}`),
		Reads:      []Read{{APIVersion: "toy/v1", Kind: "Loan", Indexes: []string{"book"}}, {APIVersion: "toy/v1", Kind: "Member"}},
		Timeout:    time.Minute,
	}
}

// policy is a source of one module with the annotations that every policy needs.
func policy(body string) Source {
	head := "# METADATA\n# title: T\n# description: D\npackage toy.p\n\n"
	return Source{
		Name: "p", Package: "toy.p", Modules: []Module{{"p.rego", head + body}}, Timeout: 10 * time.Minute, // whatever else the machine does
		Reads: []Read{{APIVersion: "toy/v1", Kind: "Loan", Indexes: []string{"book"}}},
	}
}

const denyMetadata = "# METADATA\n# title: T\n# custom: {reason: R, remedy: do it}\n"

// shelf answers from what a test put on it; what is not there is null.
type shelf struct {
	cached, live map[string]any
	err          error

	mu    sync.Mutex
	asked []Query
}

func (s *shelf) Read(_ context.Context, q Query) (Answer, error) {
	s.mu.Lock()
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	from := s.cached
	if q.Live {
		from = s.live
		if s.err != nil {
			return Answer{}, s.err
		}
	}
	v, err := ValueOf(from[q.Fact])
	return Answer{Value: v, Live: q.Live}, err
}

// withoutPrograms has the tests evaluate policies with topdown.
const withoutPrograms = "SALLYPORT_TEST_INTERPRETED"

var isInterpreted = os.Getenv(withoutPrograms) != ""

// The engine passes its tests without programs. Those are left out that take long, make no decision, or are about programs; and with -short
// those that wait for evaluations to end, or make large values.
func TestWithoutPrograms(t *testing.T) {
	if isInterpreted {
		t.Skip("this is it")
	}
	race.Skip(t) // what goroutines have in common is left out
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	skipped := "EveryWay|RandomPolicies|ExplanationAgrees|Limit|Parser|WearOut|Compile|TestSuite|TestRun|WhatAPolicyReads|PoliciesReadOnlySoMuch"
	if testing.Short() {
		skipped += "|Overrun|Impatient|Sandbox|Grow|Comprehensions"
	}
	again := exec.CommandContext(t.Context(), program, "-test.run=^Test", "-test.skip="+skipped)
	again.Env = append(os.Environ(), withoutPrograms+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func compile(src Source) (*Policy, error) { return compilePolicy(src, isInterpreted) }

func mustCompile(t *testing.T, src Source) *Policy {
	t.Helper()
	p, err := compile(src)
	if err != nil {
		t.Fatalf("compiling %s: %v", src.Name, err)
	}
	return p
}

func input(t *testing.T, request string) Input {
	t.Helper()
	v, err := ParseValue([]byte(request))
	if err != nil {
		t.Fatalf("parsing %s: %v", request, err)
	}
	return Input{Request: v, Now: time.Date(2026, 11, 20, 10, 0, 0, 5, time.UTC)}
}

func wantCause(t *testing.T, err error, want Cause, text string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an engine error with cause %s", err, want)
	}
	if e.Cause != want || !strings.Contains(e.Error(), text) {
		t.Fatalf("got %s %q, want %s with %q in it", e.Cause, e.Error(), want, text)
	}
}
