//go:build cdi

package cdi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// driverName is the name of the CSI driver.
const driverName = "folder.csi.test"

// driver is a CSI driver: a volume is a folder, and a snapshot a copy of it.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	folder string

	mu    sync.Mutex
	sizes map[string]int64 // of volumes and snapshots
	// blocks are the volumes and snapshots that are block devices, not file systems.
	blocks map[string]bool
	times  map[string]*timestamppb.Timestamp
}

// newDriver serves a driver until the test ends, and returns the path of its socket.
func newDriver(t *testing.T) (d *driver, socket string) {
	d = &driver{folder: t.TempDir(), sizes: map[string]int64{}, blocks: map[string]bool{}, times: map[string]*timestamppb.Timestamp{}}
	sockets, err := os.MkdirTemp("", "csi") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket = filepath.Join(sockets, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return d, socket
}

// path returns the folder of a volume or snapshot.
func (d *driver) path(id string) string { return filepath.Join(d.folder, filepath.Base(id)) }

// disk returns the file of a volume or snapshot that has the data, and whether that is a block device.
func (d *driver) disk(id string) (file string, block bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.blocks[id] {
		return filepath.Join(d.path(id), "device"), true
	}
	return filepath.Join(d.path(id), "disk.img"), false
}

// stored lists the volumes and snapshots.
func (d *driver) stored() (ids []string, err error) {
	entries, err := os.ReadDir(d.folder)
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

func identifier(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:8])
}

// GetPluginInfo implements csi.IdentityServer.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "v1"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	controller := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: controller}}}}, nil
}

// Probe implements csi.IdentityServer.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	} {
		rpc := &csi.ControllerServiceCapability_RPC{Type: t}
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}})
	}
	return r, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// CreateVolume implements csi.ControllerServer.
func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	from := r.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	if v := r.GetVolumeContentSource().GetVolume(); v != nil {
		from = v.GetVolumeId()
	}
	id := identifier("volume-", r.GetName())
	block := slices.ContainsFunc(r.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
	size, _, err := d.create(id, from, r.GetCapacityRange().GetRequiredBytes(), block)
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: size, ContentSource: r.GetVolumeContentSource()}}, err
}

// CreateSnapshot implements csi.ControllerServer.
func (d *driver) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	id := identifier("snapshot-", r.GetName())
	_, block := d.disk(r.GetSourceVolumeId())
	size, at, err := d.create(id, r.GetSourceVolumeId(), 0, block)
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: r.GetSourceVolumeId(), SizeBytes: size, CreationTime: at, ReadyToUse: true,
	}}, err
}

// create makes a folder, and copies another one into it.
func (d *driver) create(id, from string, size int64, block bool) (int64, *timestamppb.Timestamp, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, is := d.sizes[id]; is {
		return d.sizes[id], d.times[id], nil
	}
	if from != "" {
		if _, is := d.sizes[from]; !is {
			return 0, nil, status.Errorf(codes.NotFound, "there is no %s", from)
		}
		if d.blocks[from] != block {
			return 0, nil, status.Errorf(codes.InvalidArgument, "%s has another volume mode", from)
		}
		if err := os.CopyFS(d.path(id), os.DirFS(d.path(from))); err != nil {
			return 0, nil, err
		}
		size = max(size, d.sizes[from])
	} else if err := os.MkdirAll(d.path(id), 0o700); err != nil {
		return 0, nil, err
	}
	if block {
		device, err := os.OpenFile(filepath.Join(d.path(id), "device"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return 0, nil, err
		}
		if err := errors.Join(device.Truncate(size), device.Close()); err != nil {
			return 0, nil, err
		}
	}
	d.sizes[id], d.times[id], d.blocks[id] = size, timestamppb.Now(), block
	return size, d.times[id], nil
}

// DeleteVolume implements csi.ControllerServer.
func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, d.remove(r.GetVolumeId())
}

// DeleteSnapshot implements csi.ControllerServer.
func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, d.remove(r.GetSnapshotId())
}

func (d *driver) remove(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sizes, id)
	delete(d.blocks, id)
	return os.RemoveAll(d.path(id))
}

// read returns the data of a volume or snapshot, nil if it has none. That of a block device ends before its zeros.
func (d *driver) read(id string) ([]byte, error) {
	file, block := d.disk(id)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if block {
		data = bytes.TrimRight(data, "\x00")
	}
	return data, err
}
