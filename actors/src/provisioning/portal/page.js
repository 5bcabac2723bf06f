(function(){
var d=document,w=window,waiting=0,pinged=0,lost=0,timer,ready=d.getElementById('status').getAttribute('data-phase')!=='trying';
function $(id){return d.getElementById(id)}
function ask(method,path,body,then){
var x=new XMLHttpRequest();
x.open(method,path,true);
x.timeout=8000;
x.setRequestHeader('Accept','application/json');
if(typeof body==='string')x.setRequestHeader('Content-Type','application/x-www-form-urlencoded');
x.onload=function(){var r=null;try{r=JSON.parse(x.responseText)}catch(e){}then(r)};
x.onerror=x.ontimeout=function(){then(null)};
x.send(body||null);
}
function token(){return 'token='+d.querySelector('[name=token]').value}
function chosen(){return d.querySelector('[name=network]:checked')}
function secret(){
var c=chosen();
$('secret').hidden=!!c&&c.getAttribute('data-open')==='1';
}
function show(r){
var s=$('status'),l=$('list'),c=chosen(),i,t=d.querySelectorAll('[name=token]');
for(i=0;i<t.length;i++)t[i].value=r.token;
if(s.innerHTML!==r.status&&s.getAttribute('data-text')!==r.status){s.innerHTML=r.status;s.setAttribute('data-text',r.status)}
if(l.getAttribute('data-text')!==r.networks){
var value=c&&c.value,inside=l.contains(d.activeElement);
i=l.querySelector('details[open]');
l.innerHTML=r.networks;
if(i&&l.querySelector('details'))l.querySelector('details').open=true;
l.setAttribute('data-text',r.networks);
t=l.querySelectorAll('input');
for(i=0;i<t.length;i++)if(t[i].value===value){t[i].checked=true;if(inside)t[i].focus()}
secret();
}
$('status').parentNode.className=w.location.search==='?again'&&r.mood==='done'?'':r.mood;
if(!r.identity&&$('who'))$('who').parentNode.removeChild($('who'));
if(r.phase!=='trying'&&!ready){
ready=true;
s.scrollIntoView();
ask('POST','/seen',token(),function(){});
if(r.mood==='done')w.setTimeout(function(){w.location.replace('/?done')},6000);
}
if(r.phase==='trying')ready=false;
}
function look(){
w.clearTimeout(timer);
if(!d.hidden)ask('GET','/state',null,function(r){
if(r&&r.token){lost=0;show(r)}
else if(++lost===3&&!ready)$('status').innerHTML=$('status').getAttribute('data-gone');
next();
});else next();
}
function next(){w.clearTimeout(timer);timer=w.setTimeout(look,ready&&Date.now()>waiting?10000:2000)}
function problem(text,field){
var p=$('problem'),i=d.querySelectorAll('[aria-invalid]'),n;
for(n=0;n<i.length;n++)i[n].removeAttribute('aria-invalid');
p.innerHTML='';
if(!text)return;
var c=d.createElement('div'),b=d.createElement('b');
c.className='card no';
b.textContent=text;
c.appendChild(b);
p.appendChild(c);
var f=field&&$(field);
if(f){f.setAttribute('aria-invalid','true');f.focus()}
p.scrollIntoView();
}
function ping(){
var now=Date.now();
if(now-pinged>20000){pinged=now;ask('POST','/touched',token(),function(){})}
}
$('join').addEventListener('submit',function(e){
if(!w.FormData)return;
e.preventDefault();
problem();
var go=$('go');
go.disabled=true;
ask('POST','/join',new FormData(this),function(r){
go.disabled=false;
if(!r)return problem('The device did not answer. Is this phone still on its hotspot?');
if(r.problem)return problem(r.problem,r.field);
$('password').value='';
if($('who')){$('credentials').value='';$('file').value=''}
ready=false;
show(r);
$('status').scrollIntoView();
next();
});
});
$('again').addEventListener('submit',function(e){
e.preventDefault();
var b=$('rescan');
b.disabled=true;
waiting=Date.now()+15000;
w.setTimeout(function(){b.disabled=false},6000);
ask('POST','/rescan',token(),function(r){if(r&&r.token)show(r);next()});
});
d.addEventListener('input',ping);
d.addEventListener('change',function(){ping();secret()});
d.addEventListener('visibilitychange',function(){if(!d.hidden)look()});
var s=$('show');
s.hidden=false;
s.addEventListener('click',function(){
var p=$('password'),on=p.type==='password';
p.type=on?'text':'password';
s.textContent=on?'Hide':'Show';
s.setAttribute('aria-pressed',on);
p.focus();
});
var bad=d.querySelector('[aria-invalid]');
if(bad)bad.focus();
secret();
next();
})();
