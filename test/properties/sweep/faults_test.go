//go:build !race

package sweep

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// request is a request of an operation: the nth of that method.
type request struct {
	method string
	nth    int
}

func (r request) String() string { return fmt.Sprintf("%s %d", r.method, r.nth) }

// requests numbers the methods that were called.
func requests(called []string) []request {
	all, seen := make([]request, 0, len(called)), map[string]int{}
	for _, method := range called {
		seen[method]++
		all = append(all, request{method, seen[method]})
	}
	return all
}

// fault is what befalls one request of a process.
type fault struct {
	name string
	set  func(p *process, method string)
	// abandons tells whether a session is left behind that nobody can end, since nobody knows it any more.
	abandons func(method string) bool
}

// not tells whether the fault cannot befall a request here: an upload may stand still for minutes, and the simulator imports what the same
// session has prepared.
func (f fault) not(at request) bool {
	return f.name == hung && at.method == "POST nfc" || f.name == ended && at.method == "ImportVApp"
}

// errBroken is what a request ends with that was not sent.
var errBroken = errors.New("the connection is refused")

var (
	always = func(string) bool { return true }
	never  = func(string) bool { return false }
)

// faults is what can befall any request.
var faults = []fault{
	{"failed", func(p *process, method string) { p.faults.Fail(errBroken, method) }, never},
	{"refused", func(p *process, method string) {
		if isREST(method) {
			p.faults.Answer(http.StatusForbidden, method)
			return
		}
		p.faults.Refuse(refusal(method), method)
	}, never},
	{ended, func(p *process, method string) {
		switch {
		case method == loginREST: // that there is no session would mean that the password is wrong
			p.faults.Answer(http.StatusServiceUnavailable, method)
		case isREST(method):
			p.faults.Answer(http.StatusUnauthorized, method)
		default:
			p.faults.Refuse(&types.NotAuthenticated{}, method)
		}
	},
		// It has not, in truth. At the login there is none yet. Those of the REST API are not counted.
		func(method string) bool { return method != login && !isREST(method) }},
	{hung, func(p *process, method string) { p.faults.Instead(p.calls.hang, method) }, never},
	{"reply lost", func(p *process, method string) { p.faults.LoseReply(method) },
		func(method string) bool { return method == login }},
	{"killed after it", func(p *process, method string) { p.faults.Before(func() { p.dying.Store(true) }, method) }, always},
}

const (
	hung      = "hung"
	ended     = "session ended"
	login     = "Login"
	loginREST = "POST session"
)

// isREST tells the requests of the REST API, which have a verb.
func isREST(method string) bool { return strings.Contains(method, " ") }

// refusal is what vCenter refuses a request with that it can carry out a moment later: what changes something comes at the
// wrong moment, and for the rest a right is missing.
func refusal(method string) types.BaseMethodFault {
	switch method {
	case "ReconfigVM_Task":
		return &types.ConcurrentAccess{}
	case "PowerOnVM_Task", "PowerOffVM_Task", "RelocateVM_Task", "CloneVM_Task", "Destroy_Task":
		return &types.TaskInProgress{}
	case "CreateVirtualDisk_Task", "ExtendVirtualDisk_Task", "DeleteVirtualDisk_Task":
		return &types.FileLocked{}
	case "CancelTask":
		return &types.InvalidState{}
	case "ShutdownGuest":
		return &types.ToolsUnavailable{}
	}
	return &types.NoPermission{PrivilegeId: "System.View"}
}

// befall has the fault befall that request of the process.
func (f fault) befall(p *process, r request) {
	for range r.nth - 1 {
		p.faults.Before(func() {}, r.method) // goes through
	}
	f.set(p, r.method)
}
