package vsphere_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// entry is a file of an OVA.
type entry struct {
	name, content string
}

// tarOf gives the files as an archive.
func tarOf(entries ...entry) []byte {
	var text bytes.Buffer
	files := tar.NewWriter(&text)
	var err error
	for _, e := range entries {
		err = errors.Join(err, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o644, Size: int64(len(e.content))}))
		_, wrote := files.Write([]byte(e.content))
		err = errors.Join(err, wrote)
	}
	if err = errors.Join(err, files.Close()); err != nil {
		panic(err)
	}
	return text.Bytes()
}

// content is what the disk of an OVA is.
var content = strings.Repeat("streamOptimized ", 4096)

// descriptor is an OVF with these networks, and a disk of 64 MiB in disk.vmdk.
func descriptor(networks ...string) string {
	var named strings.Builder
	for _, name := range networks {
		fmt.Fprintf(&named, `<Network ovf:name="%s"><Description/></Network>`, name)
	}
	return fmt.Sprintf(`<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
 xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
 <References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="%d"/></References>
 <DiskSection><Info/><Disk ovf:capacity="64" ovf:capacityAllocationUnits="byte * 2^20" ovf:diskId="vmdisk1" ovf:fileRef="file1"/></DiskSection>
 <NetworkSection><Info/>%s</NetworkSection>
 <VirtualSystem ovf:id="image"><Info/>
  <VirtualHardwareSection><Info/>
   <System><vssd:ElementName>x</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-13</vssd:VirtualSystemType></System>
   <Item><rasd:ElementName>cpu</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
   <Item><rasd:ElementName>scsi</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>pvscsi</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
   <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk</rasd:ElementName><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource><rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
   <Item><rasd:Connection>%s</rasd:Connection><rasd:ElementName>nic</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID><rasd:ResourceSubType>vmxnet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
  </VirtualHardwareSection>
 </VirtualSystem>
</Envelope>`, len(content), named.String(), strings.Join(networks, ""))
}

// image is an OVA that can be imported.
func image() archive {
	return archive{content: tarOf(entry{"image.ovf", descriptor("nat")}, entry{"image.mf", "SHA256"}, entry{"disk.vmdk", content})}
}

// archive is an OVA in memory.
type archive struct {
	content []byte
	before  func() // Run before more than the descriptor is read, or nil.
	fails   error  // What reading the disk ends with, or nil.
}

// Open gives the archive from its beginning.
func (a archive) Open() (io.ReadSeekCloser, error) {
	return &opened{Reader: bytes.NewReader(a.content), archive: a}, nil
}

type opened struct {
	*bytes.Reader
	archive
	ran bool
}

func (o *opened) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	if !bytes.Contains(p[:n], []byte("streamOptimized")) {
		return n, err
	}
	if o.before != nil && !o.ran {
		o.ran = true
		o.before()
	}
	if o.fails != nil {
		return 0, o.fails
	}
	return n, err
}

func (o *opened) Close() error { return nil }
