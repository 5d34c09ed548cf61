package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// apiServer answers what caches and live facts ask, out of the fixture, so that a hundred thousand operations need no etcd. It
// is in another process than what is measured, and is not counted.
type apiServer struct {
	*httptest.Server
	operations int
}

const (
	allMachines   = "/apis/sallyport.dev/v1alpha1/virtualmachines"
	allOperations = "/apis/sallyport.dev/v1alpha1/virtualmachineoperations"
	inNamespace   = "/apis/sallyport.dev/v1alpha1/namespaces/team-a/"
)

// startAPIServer serves a world with that many unfinished operations.
func startAPIServer(operations int) *apiServer {
	s := &apiServer{operations: operations}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+allMachines, s.machines)
	mux.HandleFunc("GET "+allOperations, s.all)
	mux.HandleFunc("GET "+inNamespace+"virtualmachines/{name}", s.machine)
	mux.HandleFunc("GET "+inNamespace+"virtualmachineoperations", s.unfinished)
	s.Server = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

func (s *apiServer) authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func (s *apiServer) machines(w http.ResponseWriter, r *http.Request) {
	list(w, r, "VirtualMachine", 2*machines, func(i int) []byte {
		if i < machines {
			return of(machineCalled, busy(i))
		}
		return of(machineCalled, idle(i))
	})
}

func (s *apiServer) all(w http.ResponseWriter, r *http.Request) {
	list(w, r, "VirtualMachineOperation", s.operations, func(i int) []byte { return of(operationFor, operated(i, s.operations)) })
}

func (s *apiServer) machine(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(of(machineCalled, r.PathValue("name")))
}

// unfinished is the list of one machine's operations, which the fixture has for the busy ones alone.
func (s *apiServer) unfinished(w http.ResponseWriter, r *http.Request) {
	var found []string
	for term := range strings.SplitSeq(r.URL.Query().Get("fieldSelector"), ",") {
		if machine, ok := strings.CutPrefix(term, "spec.virtualMachineName="); ok && strings.HasPrefix(machine, "busy-") {
			found = append(found, machine)
		}
	}
	list(w, r, "VirtualMachineOperation", len(found), func(i int) []byte { return of(operationFor, found[i]) })
}

// list writes a list, or watches a world in which nothing happens.
func list(w http.ResponseWriter, r *http.Request, kind string, n int, object func(int) []byte) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	if query.Get("sendInitialEvents") != "" {
		w.WriteHeader(http.StatusBadRequest) // whoever asks lists then
		return
	}
	if query.Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	fmt.Fprintf(w, `{"apiVersion":"sallyport.dev/v1alpha1","kind":"%sList","metadata":{"resourceVersion":"2000"},"items":[`, kind)
	for i := range n {
		if i > 0 {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = w.Write(object(i))
	}
	_, _ = io.WriteString(w, "]}")
}
