// Package vcsim is a vCenter to test against and to show things with. It is govmomi's simulator, over TLS and with real
// logins, made to behave as a real vCenter does where the simulator does not: a task takes effect when it ends, can be
// kept in flight, and does not happen once it is cancelled; two tasks of a machine exclude each other; a guest is asked to
// shut down and does so in its own time, late or not at all; a change of the configuration keeps to its changeVersion; and
// resuming a machine is no power-on.
package vcsim

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// folder is the inventory path under which the machines are.
const folder = "/DC0/vm/"

// Options say what a VCenter is like.
type Options struct {
	// Address is what it listens on, such as 127.0.0.1:8989. Default: a free port of 127.0.0.1.
	Address string
	// InstanceUUID is the ID of the vCenter. Default: the same for all.
	InstanceUUID string
	// Hosts is how many hosts its cluster has, and that of each further datacenter. Default 3.
	Hosts int
	// Datacenters is how many there are, each with a cluster, a datastore and networks of its own. All that the methods make is in the first
	// one, /DC0. Default 1.
	Datacenters int
	// Datastores is how many datastores each of them has. Default 1.
	Datastores int
	// Step is how long a task takes, and a guest to shut down, where SetStep says nothing else. Default: no time at all.
	Step time.Duration
}

// VCenter is a vCenter with one datacenter and one cluster, in this process. It is safe for concurrent use. A method that
// is asked about a machine or a host that there is not panics.
type VCenter struct {
	step    time.Duration
	model   *simulator.Model
	service *simulator.Context
	server  *simulator.Server

	closing    chan struct{}
	background sync.WaitGroup

	requests atomic.Int64

	mu       sync.Mutex
	user     *url.Userinfo
	logins   int
	refused  int
	tasks    int
	machines map[string]*machine // By inventory path.
	making   map[string]bool     // Where machines are being made.
	locks    map[string]*machine // Which machine that is on has a file of a disk.
	fcds     *catalog            // The First Class Disks.

	losesContent atomic.Bool // The end of each file that is uploaded.

	unfit      []string      // The datastores that satisfy no storage policy.
	holdsDisks chan struct{} // What keeps disks from being made until it is closed, or nil.
}

// creating has one inventory made at a time: the simulator makes them from templates that they share.
var creating sync.Mutex

// Start starts a vCenter without machines, whose user is administrator@vsphere.local with some password.
func Start(options Options) (*VCenter, error) {
	// The simulator panics if it cannot listen.
	if options.Address != "" {
		listener, err := net.Listen("tcp", options.Address)
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		_ = listener.Close()
	}
	own, err := certificate()
	if err != nil {
		return nil, err
	}
	model := simulator.VPX()
	model.Host, model.Machine, model.Autostart = 0, 0, false
	if options.Hosts > 0 {
		model.ClusterHost = options.Hosts
	}
	if options.Datacenters > 0 {
		model.Datacenter = options.Datacenters
	}
	model.Datastore = max(1, options.Datastores)
	model.ServiceContent.About.Version = "8.0.3"
	if options.InstanceUUID != "" {
		model.ServiceContent.About.InstanceUuid = options.InstanceUUID
	}
	creating.Lock()
	err = model.Create()
	creating.Unlock()
	if err != nil {
		return nil, fmt.Errorf("making the simulator's inventory: %w", err)
	}
	v := &VCenter{
		step:     options.Step,
		model:    model,
		service:  model.Service.Context,
		closing:  make(chan struct{}),
		user:     url.UserPassword("administrator@vsphere.local", "VMware1!"),
		machines: map[string]*machine{},
		making:   map[string]bool{},
		locks:    map[string]*machine{},
	}
	// A user that is not the simulator's default has it check logins at all.
	model.Service.Listen = &url.URL{Host: options.Address, User: url.User("checked")}
	model.Service.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
	model.Service.RegisterEndpoints = true // the REST API
	v.service.Map.SessionManager().ValidLogin = v.validLogin
	v.service.Map.Put(&viewManager{v.service.Map.ViewManager()})
	v.wrapImports()
	v.server = model.Service.NewServer()
	v.wrapStoragePolicies()
	v.wrapFCDs()
	serve := v.server.Config.Handler
	v.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.requests.Add(1)
		serve.ServeHTTP(w, r)
	})
	return v, nil
}

// Close stops it. What is in flight does not happen any more.
func (v *VCenter) Close() {
	close(v.closing)
	v.background.Wait()
	v.server.CloseClientConnections()
	v.server.Close()
	v.model.Remove()
}

// Requests is how many there were.
func (v *VCenter) Requests() int { return int(v.requests.Load()) }

// URL is where it is, without a user.
func (v *VCenter) URL() string {
	address := *v.server.URL
	address.User = nil
	return address.String()
}

// CABundle is the certificate of the authority that has signed its own, in PEM.
func (v *VCenter) CABundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.server.Certificate().Raw})
}

// Thumbprint is the SHA-256 of its certificate, in hex with colons.
func (v *VCenter) Thumbprint() string { return v.server.CertificateInfo().ThumbprintSHA256 }

// User is who can log in.
func (v *VCenter) User() *url.Userinfo {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.user
}

// SetUser changes who can log in. Sessions stay.
func (v *VCenter) SetUser(user *url.Userinfo) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.user = user
}

func (v *VCenter) validLogin(login *types.Login) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	password, _ := v.user.Password()
	if login.UserName != v.user.Username() || login.Password != password {
		v.refused++
		return false
	}
	v.logins++
	return true
}

// Logins counts the logins so far, those that were let in and those that were not.
func (v *VCenter) Logins() (allowed, refused int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.logins, v.refused
}

// context gives a context of its own: the simulator's locks belong to one.
func (v *VCenter) context() *simulator.Context {
	ctx := *v.service
	return &ctx
}

// sessions gives the keys of the sessions that there are.
func (v *VCenter) sessions() (keys []string) {
	manager := v.service.Map.SessionManager()
	for _, s := range v.service.Session.Get(manager.Self).(*simulator.SessionManager).SessionList {
		keys = append(keys, s.Key)
	}
	return keys
}

// Sessions counts the sessions that there are.
func (v *VCenter) Sessions() int { return len(v.sessions()) }

// ExpireSessions ends all sessions, as vCenter does with those that are idle, and when it is restarted.
func (v *VCenter) ExpireSessions() {
	v.service.Map.SessionManager().TerminateSession(v.context(), &types.TerminateSession{SessionId: v.sessions()})
}

// Hosts gives the names of the hosts.
func (v *VCenter) Hosts() (names []string) {
	for _, host := range v.service.Map.All("HostSystem") {
		names = append(names, host.Entity().Name)
	}
	slices.Sort(names)
	return names
}

func (v *VCenter) host(name string) *simulator.HostSystem {
	for _, host := range v.service.Map.All("HostSystem") {
		if host.Entity().Name == name {
			return host.(*simulator.HostSystem)
		}
	}
	panic("vcsim: there is no host " + name)
}

// SetHost changes whether the host is connected and whether it is in maintenance mode.
func (v *VCenter) SetHost(name string, connected, maintenance bool) {
	state := types.HostSystemConnectionStateConnected
	if !connected {
		state = types.HostSystemConnectionStateDisconnected
	}
	host, ctx := v.host(name), v.context()
	ctx.WithLock(host, func() {
		ctx.Update(host, []types.PropertyChange{
			{Name: "runtime.connectionState", Val: state},
			{Name: "runtime.inMaintenanceMode", Val: maintenance},
		})
	})
}

// first gives what is in the first datacenter: it has the first name.
func (v *VCenter) first(kind string) mo.Entity {
	return slices.MinFunc(v.service.Map.All(kind), func(a, b mo.Entity) int { return strings.Compare(a.Entity().Name, b.Entity().Name) })
}

// AddPool makes a resource pool of that name in the cluster's own one.
func (v *VCenter) AddPool(name string) {
	own := v.service.Map.Get(*v.first("ClusterComputeResource").(*simulator.ClusterComputeResource).ResourcePool).(*simulator.ResourcePool)
	ctx := v.context()
	ctx.WithLock(own, func() {
		own.CreateResourcePool(ctx, &types.CreateResourcePool{This: own.Self, Name: name, Spec: types.DefaultResourceConfigSpec()})
	})
}

// RenamePlace renames what of that type, such as a Datastore, has the name, but for machines.
func (v *VCenter) RenamePlace(kind, from, to string) {
	for _, place := range v.service.Map.All(kind) {
		if place.Entity().Name == from {
			ctx := v.context()
			ctx.WithLock(place, func() { ctx.Update(place, []types.PropertyChange{{Name: "name", Val: to}}) })
			return
		}
	}
	panic("vcsim: there is no " + kind + " " + from)
}

// DisconnectClusters takes the networks of a kind from all clusters, as if no host were connected to their switch.
func (v *VCenter) DisconnectClusters(kind string) {
	for _, place := range v.service.Map.All("ClusterComputeResource") {
		cluster, ctx := place.(*simulator.ClusterComputeResource), v.context()
		ctx.WithLock(place, func() {
			left := slices.DeleteFunc(slices.Clone(cluster.Network), func(n types.ManagedObjectReference) bool { return n.Type == kind })
			ctx.Update(place, []types.PropertyChange{{Name: "network", Val: left}})
		})
	}
}

// AddMachine makes a machine of that name, off, on the first host, with VMware Tools, whose guest heeds requests to shut
// down. It gives its inventory path.
func (v *VCenter) AddMachine(name string) (path string, err error) { return v.add(name, nil) }

// AddTemplate makes a template of that name with a thin disk of a gibibyte and a network adapter. It gives its inventory path.
func (v *VCenter) AddTemplate(name string) (path string, err error) {
	devices, err := templateDevices()
	if err != nil {
		return "", err
	}
	path, err = v.add(name, devices)
	if err == nil {
		v.SetTemplate(path, true)
	}
	return path, err
}

func templateDevices() ([]types.BaseVirtualDeviceConfigSpec, error) {
	var all object.VirtualDeviceList
	controller, err := all.CreateSCSIController("pvscsi")
	if err != nil {
		return nil, err
	}
	all = append(all, controller)
	disk := all.CreateDisk(controller.(types.BaseVirtualController), types.ManagedObjectReference{}, "")
	disk.CapacityInKB = 1 << 20
	disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).ThinProvisioned = new(true)
	adapter, err := all.CreateEthernetCard("vmxnet3", &types.VirtualEthernetCardNetworkBackingInfo{
		VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
	})
	if err != nil {
		return nil, err
	}
	return append(all, disk, adapter).ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd)
}

func (v *VCenter) add(name string, devices []types.BaseVirtualDeviceConfigSpec) (path string, err error) {
	registry := v.service.Map
	vms := registry.Get(v.first("Datacenter").(*simulator.Datacenter).VmFolder).(*simulator.Folder)
	pool := v.first("ClusterComputeResource").(*simulator.ClusterComputeResource).ResourcePool
	host := v.host(v.Hosts()[0]).Self
	ctx := v.context()
	var ref types.ManagedObjectReference
	ctx.WithLock(vms, func() {
		body := vms.CreateVMTask(ctx, &types.CreateVM_Task{This: vms.Self, Pool: *pool, Host: &host,
			Config: types.VirtualMachineConfigSpec{
				Name:         name,
				GuestId:      string(types.VirtualMachineGuestOsIdentifierOtherGuest),
				Files:        &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
				DeviceChange: devices,
			}})
		ref = body.(*methods.CreateVM_TaskBody).Res.Returnval
	})
	made := registry.Get(ref).(*simulator.Task)
	made.Wait()
	if made.Info.Error != nil {
		return "", errors.New("making the machine " + name + ": " + made.Info.Error.LocalizedMessage)
	}
	path = folder + name
	v.wrap(made.Info.Result.(types.ManagedObjectReference), path)
	return path, nil
}

// wrap has the simulator's machine behave as one of a vCenter.
func (v *VCenter) wrap(ref types.ManagedObjectReference, path string) *machine {
	registry := v.service.Map
	m := &machine{VirtualMachine: registry.Get(ref).(*simulator.VirtualMachine), center: v, step: v.step, holds: map[string]chan struct{}{}}
	registry.Put(m)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.machines[path] = m
	return m
}

// at runs f on the machine at that path, which nothing changes meanwhile.
func (v *VCenter) at(path string, f func(ctx *simulator.Context, m *machine)) {
	if !v.ifAt(path, f) {
		panic("vcsim: there is no machine at " + path)
	}
}

// ifAt is at for a machine that may not be there, and reports whether it is.
func (v *VCenter) ifAt(path string, f func(ctx *simulator.Context, m *machine)) bool {
	v.mu.Lock()
	m := v.machines[path]
	v.mu.Unlock()
	if m == nil {
		return false
	}
	ctx := v.context()
	var failed any
	ctx.WithLock(m, func() { // which keeps the lock if it panics
		defer func() { failed = recover() }()
		f(ctx, m)
	})
	if failed != nil {
		panic(failed)
	}
	return true
}

// Machines gives the inventory paths of the machines, templates among them.
func (v *VCenter) Machines() (paths []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for path := range v.machines {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// Rename renames the machine and gives its new path.
func (v *VCenter) Rename(path, name string) string {
	v.at(path, func(ctx *simulator.Context, m *machine) {
		ctx.Update(m, []types.PropertyChange{{Name: "name", Val: name}})
	})
	renamed := path[:strings.LastIndex(path, "/")+1] + name
	v.mu.Lock()
	defer v.mu.Unlock()
	v.machines[renamed] = v.machines[path]
	delete(v.machines, path)
	return renamed
}

// extraConfig gives what text there is in the machine's extraConfig, by key.
func extraConfig(m *machine) map[string]string {
	all := map[string]string{}
	for key, value := range object.OptionValueList(m.Config.ExtraConfig).Map() {
		if text, ok := value.(string); ok {
			all[key] = text
		}
	}
	return all
}
