package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Runtime is a client of a world that is served. It is a runtime.Migrator and a runtime.Disks too.
type Runtime struct {
	url, name string
	client    *http.Client
}

var (
	_ runtime.Runtime  = (*Runtime)(nil)
	_ runtime.Migrator = (*Runtime)(nil)
	_ runtime.Disks    = (*Runtime)(nil)
)

// Dial makes a client of the world at that address. The name is how the world's log tells it from others.
func Dial(address, name string) *Runtime {
	// Every call has a connection of its own: what a caller gives up cannot wait on one that is used again.
	transport := &http.Transport{DisableKeepAlives: true}
	return &Runtime{url: "http://" + address + path, name: name, client: &http.Client{Transport: transport}}
}

// The environment of a manager that has its machines in a world.
const addressVariable, nameVariable = "SALLYPORT_SIMULATOR", "SALLYPORT_SIMULATOR_CLIENT"

// Environment is what a manager is given to find the world, and to be called by that name there.
func (s *Server) Environment(name string) []string {
	return []string{addressVariable + "=" + s.Address, nameVariable + "=" + name}
}

// FromEnvironment gives a client of the world of the environment.
func FromEnvironment() *runtime.Client {
	return runtime.NewClient(Dial(os.Getenv(addressVariable), os.Getenv(nameVariable)))
}

// call makes a call and waits for what came of it.
func (r *Runtime) call(ctx context.Context, q request) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, runtime.NewUnavailable(err, "the simulated runtime was not asked in time")
	}
	q.Client = r.name
	q.Deadline, _ = ctx.Deadline()
	body, err := json.Marshal(q)
	if err != nil {
		return reply{}, fmt.Errorf("writing a call of the simulated runtime: %w", err)
	}
	message, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return reply{}, fmt.Errorf("writing a call of the simulated runtime: %w", err)
	}
	response, err := r.client.Do(message)
	if err != nil {
		return reply{}, runtime.NewUnavailable(err, "the simulated runtime did not answer")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return reply{}, fmt.Errorf("the simulated runtime answered with %s", response.Status)
	}
	var a reply
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return reply{}, runtime.NewUnavailable(err, "the simulated runtime did not answer")
	}
	return a, a.Failure.err()
}

// Observe looks at the machine.
func (r *Runtime) Observe(ctx context.Context, m runtime.Machine) (runtime.Observation, error) {
	a, err := r.call(ctx, request{Verb: runtime.VerbObserve, Machine: m})
	return a.Observation, err
}

// Ensure makes the machine, or adopts the one at its place.
func (r *Runtime) Ensure(ctx context.Context, m runtime.Machine) (string, error) {
	a, err := r.call(ctx, request{Verb: runtime.VerbEnsure, Machine: m})
	return a.InstanceID, err
}

// PowerOn powers the machine on.
func (r *Runtime) PowerOn(ctx context.Context, m runtime.Machine) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbPowerOn, Machine: m})
	return err
}

// PowerOff asks the guest to shut down, or takes the power away.
func (r *Runtime) PowerOff(ctx context.Context, m runtime.Machine, mode runtime.Mode) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbPowerOff, Machine: m, Mode: mode})
	return err
}

// Cancel asks for a power-on or relocation of ours to be withdrawn.
func (r *Runtime) Cancel(ctx context.Context, m runtime.Machine, task string) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbCancel, Machine: m, Task: task})
	return err
}

// Delete removes the machine, or releases it if it was adopted.
func (r *Runtime) Delete(ctx context.Context, m runtime.Machine) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbDelete, Machine: m})
	return err
}

// Migrate moves the machine.
func (r *Runtime) Migrate(ctx context.Context, m runtime.Machine, target runtime.Target) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbMigrate, Machine: m, Target: target})
	return err
}

// ObserveDisk looks at the disk.
func (r *Runtime) ObserveDisk(ctx context.Context, d runtime.Disk) (runtime.DiskObservation, error) {
	a, err := r.call(ctx, request{Verb: runtime.VerbObserveDisk, Disk: d})
	return a.Disk, err
}

// EnsureDisk makes or grows the disk.
func (r *Runtime) EnsureDisk(ctx context.Context, d runtime.Disk) (string, error) {
	a, err := r.call(ctx, request{Verb: runtime.VerbEnsureDisk, Disk: d})
	return a.DiskID, err
}

// DeleteDisk destroys the disk.
func (r *Runtime) DeleteDisk(ctx context.Context, d runtime.Disk) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbDeleteDisk, Disk: d})
	return err
}

// Attach attaches the disk to the machine.
func (r *Runtime) Attach(ctx context.Context, m runtime.Machine, d runtime.Disk) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbAttach, Machine: m, Disk: d})
	return err
}

// Detach takes the disk off the machine.
func (r *Runtime) Detach(ctx context.Context, m runtime.Machine, disk types.UID) error {
	_, err := r.call(ctx, request{Verb: runtime.VerbDetach, Machine: m, Disk: runtime.Disk{UID: disk}})
	return err
}
